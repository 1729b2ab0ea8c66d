"""Learning-rate schedules as objects: what the functions of ``layers.learning_rate_scheduler`` return in eager mode."""
