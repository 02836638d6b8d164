"""A recurrent language model in plain torch."""

from torch import Tensor, nn


class LstmLanguageModel(nn.Module):
    """Word embedding, LSTM layers and an output layer (Zaremba et al., 2014)."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.recurrent = nn.LSTM(width, width, num_layers=layers, batch_first=True)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next word, (batch, tokens, vocabulary), from (batch, tokens) word indices."""
        features, _ = self.recurrent(self.words(tokens))
        scores: Tensor = self.output(features)
        return scores


def lstm_language_model(vocabulary: int = 10_000, width: int = 650, layers: int = 2) -> nn.Module:
    """The medium model of that paper: 19.8 million parameters."""
    return LstmLanguageModel(vocabulary, width, layers)
