"""Files that appear whole, worker processes, threads, progress: what knows no speech."""
