"""Earlier names of ``findings``, for modules that still import them."""

from mergekit_map.results.findings import prior_predictions as prior_predictions
from mergekit_map.results.gains import foretold as foretold
