"""Other people's loaders under the laws: adapters, and the script that records what was found."""
