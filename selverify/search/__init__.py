"""Search methods: plain generators that yield typed requests and return an outcome."""
