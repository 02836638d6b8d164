"""DCGAN's two networks in plain torch (Radford et al., 2015), for 64x64 images."""

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional


def dcgan_generator(latent: int = 100, width: int = 64) -> nn.Module:
    """Generator: (batch, latent, 1, 1) noise to (batch, 3, 64, 64) images; 3.58 million parameters."""
    layers: list[nn.Module] = []
    channels = latent
    for step, multiple in enumerate((8, 4, 2, 1)):
        stride, padding = (1, 0) if step == 0 else (2, 1)
        layers += [
            nn.ConvTranspose2d(channels, width * multiple, 4, stride, padding, bias=False),
            nn.BatchNorm2d(width * multiple),
            nn.ReLU(),
        ]
        channels = width * multiple
    return nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())


def dcgan_discriminator(width: int = 64) -> nn.Module:
    """Discriminator: (batch, 3, 64, 64) images to (batch, 1) scores before the sigmoid; 2.77 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for multiple in (1, 2, 4):
        layers += [
            nn.Conv2d(width * multiple, width * multiple * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * multiple * 2),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten())


def dcgan_generator_step() -> nn.Module:
    """The model of a generator step: its images go through the discriminator, whose weights are frozen."""
    return nn.Sequential(
        OrderedDict(generator=dcgan_generator(), discriminator=dcgan_discriminator().requires_grad_(False))
    )


def adversarial_loss(score: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of scores before the sigmoid against 1 (real) and 0 (generated)."""
    return functional.binary_cross_entropy_with_logits(score, target)
