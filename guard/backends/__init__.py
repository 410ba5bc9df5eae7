"""Where a guard's events go and its view comes from: this process, a `trustfold up`, or Kafka."""
