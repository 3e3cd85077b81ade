"""Tasks: measurements of a merged model; the only package that imports lm_eval.

``loading.load_tasks`` reads and checks everything that needs no model;
``loading.prepare_tasks`` ties the loaded tasks to one model in memory.
"""
