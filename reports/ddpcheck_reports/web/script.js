"use strict";
// Filters of the matrix, and the fold that holds the failure to which a cell leads. The page shows all without it.
(() => {
  const filters = document.querySelector(".filters");
  if (filters) {
    const rows = [...document.querySelectorAll(".matrix tr[data-name]")];
    const families = [...document.querySelectorAll(".matrix tr.family")];
    const words = filters.querySelector("input[type=search]");
    const boxes = [...filters.querySelectorAll("input[type=checkbox]")];
    const left = filters.querySelector("output");
    const apply = () => {
      const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      const text = words.value.trim().toLowerCase();
      const shown = new Set();
      let count = 0;
      for (const row of rows) {
        const statuses = row.dataset.statuses.split(" ");
        const fits = row.dataset.name.includes(text) && statuses.some((status) => wanted.has(status));
        row.hidden = !fits;
        if (fits) { shown.add(row.dataset.family); count += 1; }
      }
      for (const row of families) row.hidden = !shown.has(row.dataset.family);
      left.textContent = `${count} of ${rows.length} checks`;
    };
    filters.hidden = false;
    filters.addEventListener("input", apply);
    apply();
  }
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const fold = target && target.closest("details");
    if (fold) { fold.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
})();
