"""The experimental features of svcd.validation.features, for the routes."""
from svcd.validation.features import FEATURES, PERSONALIZATION, Feature, not_enabled, require

__all__ = ["FEATURES", "PERSONALIZATION", "Feature", "not_enabled", "require"]
