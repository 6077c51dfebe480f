"""What is in audio files: the reader, the headers it reads by, resampling, and finding files."""
