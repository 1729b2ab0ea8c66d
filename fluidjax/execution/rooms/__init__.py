"""How much room batches of changing sizes get: few executables serve many sizes."""
