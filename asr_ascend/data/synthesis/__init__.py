"""The embedded corpus: its sentences, espeak-ng's voices and the command that makes it."""
