"""Demo applications: `penstock demo NAME` runs each, `penstock run FILE` too. They use what a user's program may."""
