"""Nouns and wire messages: what processes say to each other and write into files. No behaviour, no I/O."""
