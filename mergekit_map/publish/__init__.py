"""The publishing room: pictures and cards made from results."""
