"""What could explain a training run that ends elsewhere: the run once more, with one rule changed, and the cause of that rule."""
