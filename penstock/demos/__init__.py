"""Demo applications. `penstock demo NAME` or `penstock run FILE` runs them. They import only what users may import."""
