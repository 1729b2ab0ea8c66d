"""Numbers of rows and sizes of dims, as a run knows them while it is traced.

``counts`` are numbers of rows, known or not; ``labels`` tell which sizes are the same; ``multiples`` which are whole
multiples of others; ``moves`` close up what lies beyond the used places.
"""
