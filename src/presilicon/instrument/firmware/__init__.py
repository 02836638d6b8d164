"""Firmware of the instrument: its language, compiler, image and files."""
