"""Tasks: measurements of a merged model; the only package that imports lm_eval."""
