// Wide tables scroll inside the page; so that they also do by keyboard, they can be focused.
document$.subscribe(() =>
  requestAnimationFrame(() => {
    for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0
  })
)
