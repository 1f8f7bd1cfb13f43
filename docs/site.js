// The theme's arrows that unfold a list of pages have no words for who cannot see them.
document.addEventListener("DOMContentLoaded", () => {
  for (const arrow of document.querySelectorAll(".has-children > details > summary")) {
    arrow.setAttribute("aria-label", "More pages");
  }
});
