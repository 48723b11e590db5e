// Keys inside a panel. Without this, JupyterLab takes a letter typed while a drop-down or a button
// has the focus for a shortcut of its own: "x" cuts the whole cell.

function indentOf(text) {
  const line = text.value.slice(0, text.selectionStart).split("\n").pop();
  const spaces = line.match(/^ */)[0];
  return line.trimEnd().endsWith(":") ? spaces + "    " : spaces;
}

function onEnter(event, text) {
  event.preventDefault();
  event.stopImmediatePropagation();
  if (event.shiftKey || event.ctrlKey || event.metaKey) {
    text.dispatchEvent(new Event("change", { bubbles: true })); // takes the text
  } else {
    // insertText keeps the browser's undo working
    document.execCommand("insertText", false, "\n" + indentOf(text));
  }
}

function isControl(element) {
  return element.matches("select, button, input[type=checkbox], input[type=radio]");
}

export default {
  render({ el }) {
    el.style.display = "none";
    const onKey = (event) => {
      const panel = el.closest(".jp-OutputArea-output") ?? el.parentElement;
      if (!panel?.contains(event.target) || event.isComposing) return;
      if (event.key === "Enter" && event.target.tagName === "TEXTAREA") {
        onEnter(event, event.target);
      } else if (isControl(event.target) && !event.ctrlKey && !event.metaKey && !event.altKey) {
        // The browser still does its own: choose, tick, press, move on.
        event.stopImmediatePropagation();
      }
    };
    // On the window, while the event goes down: JupyterLab listens on the document.
    window.addEventListener("keydown", onKey, true);
    return () => window.removeEventListener("keydown", onKey, true);
  },
};
