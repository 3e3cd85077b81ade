"""The files of a run folder, read and written as typed values."""
