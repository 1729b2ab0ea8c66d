"""Neural-network layers: convolution, pooling, normalisation, activations, embeddings."""
