"""Numbers of rows and sizes of dims, as a run knows them while it is traced."""
