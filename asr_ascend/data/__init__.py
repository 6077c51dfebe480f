"""Manifests, audio, features, noise, batches: everything between a file on disk and a `Batch`."""
