"""DCGAN's two networks in plain torch (Radford et al., 2015), for 64x64 images."""

from torch import nn


def dcgan_generator(latent: int = 100, width: int = 64) -> nn.Module:
    """From (batch, latent, 1, 1) noise to (batch, 3, 64, 64) images: 3.58 million parameters."""
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
    """From (batch, 3, 64, 64) images to (batch, 1) scores before the sigmoid: 2.77 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for multiple in (1, 2, 4):
        layers += [
            nn.Conv2d(width * multiple, width * multiple * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * multiple * 2),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten())
