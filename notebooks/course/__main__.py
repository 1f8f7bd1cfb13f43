"""Print how many guesses were right, over all pages."""

from course.guesses import summary

print(summary())
