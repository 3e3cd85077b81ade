"""The checkpoint on the Hub: model card, licence, upload."""
