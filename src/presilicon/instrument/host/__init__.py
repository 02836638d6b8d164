"""The host's side: stream, links, commands, taps on a training, views."""
