# ruff: noqa: F821 (a part goes in the place of the lines above `check` in its exercise)

# %% Exercise 1
left_over = {name: (TokenFile(path).num_tokens - 1) % 4 for name, path in paths.items()}

# %% Exercise 2
epochs = STEPS * BATCH / sum((file.num_tokens - 1) // SEQUENCE_LENGTH for file in files)


# %% Exercise 3
def read_sample(path, j, sequence_length):
    with open(path, "rb") as file:
        file.seek(2 * j * sequence_length)
        return np.frombuffer(file.read(2 * (sequence_length + 1)), dtype="<u2")
