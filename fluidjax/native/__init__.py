"""What Fluid's compiled library has under ``fluid.core`` for its own Python modules, and few scripts use."""
