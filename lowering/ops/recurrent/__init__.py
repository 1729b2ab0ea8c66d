"""Recurrent kernels: LSTM, GRU and their relatives."""
