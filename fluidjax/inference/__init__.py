"""Inference with saved models: config, predictor, input and output tensors (``fluid.core.AnalysisConfig``)."""
