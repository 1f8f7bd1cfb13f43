"""The colours of the pictures, from light to what has a meaning of its own."""

COLOURS = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fc9272", "#d9d9d9", "#fdd0a2", "#c7e9c0")
DOCUMENTS = COLOURS[:5]  # without grey, which stands for what is lost, idle or elsewhere
LINES = ("#3182bd", "#e6550d", "#31a354", "#756bb1")
TWICE, NEVER, IDLE = COLOURS[1], "#de2d26", "#f0f0f0"
SEPARATOR, INK = "#636363", "#333333"
