"""Saved models run as they were deployed: a config, a predictor, tensors in and out (``fluid.core.AnalysisConfig``)."""
