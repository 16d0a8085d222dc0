"""Reports about a period, which people sign: of an officer, of a dataset, of a population."""
