// How pointers move a drawing: a mouse and one finger move it, two fingers zoom it as well.

// Makes a drawing follow what is pressed on it; one finger moves it only where the page does not scroll with that.
function followPointers(view) {
  const { element } = view;
  const pressed = new Map();
  const scrolls = ({ pointerType }) => pointerType === "touch" && pressed.size < 2 && getComputedStyle(element).touchAction !== "none";
  element.addEventListener("pointerdown", (event) => {
    if (!pressed.size) view.dragged = false;
    pressed.set(event.pointerId, { x: event.clientX, y: event.clientY });
  });
  element.addEventListener("pointermove", (event) => {
    const from = pressed.get(event.pointerId);
    if (!from || scrolls(event)) return;
    if (!view.dragged && Math.hypot(event.clientX - from.x, event.clientY - from.y) < 4) return;
    if (!view.dragged) element.setPointerCapture(event.pointerId);
    view.dragged = true;
    const was = spanned(pressed);
    pressed.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const is = spanned(pressed);
    const corner = element.getBoundingClientRect();
    view.view = { ...view.view, x: view.view.x + is.x - was.x, y: view.view.y + is.y - was.y };
    view.zoom(is.apart / was.apart, is.x - corner.left, is.y - corner.top);
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, ({ pointerId }) => pressed.delete(pointerId));
  // neither the page's scrolling nor the browser's own zoom takes two fingers away from the drawing
  element.addEventListener("touchmove", (event) => event.cancelable && event.touches.length > 1 && event.preventDefault(), { passive: false });
}

// Returns the middle of the first two points, and how far they are apart; of one point, itself.
function spanned(points) {
  const [one, other = one] = points.values();
  const apart = Math.hypot(one.x - other.x, one.y - other.y);
  return { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2, apart: apart || 1 };
}
