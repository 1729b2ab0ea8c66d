"""Recurrent kernels: LSTM, GRU and variants."""
