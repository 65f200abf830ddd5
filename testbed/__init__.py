"""The local stand-in for production: broker, engines and all that the demo and the tests start and stop."""
