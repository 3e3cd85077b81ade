"""The study room: what is measured, kept, fitted and handed on in a run folder."""
