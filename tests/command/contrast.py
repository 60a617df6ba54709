"""The contrast of a page's texts, computed from the page as a browser has rendered it.

WCAG 2.2, success criterion 1.4.3, asks for 4.5 of texts. Here that holds for large texts too, and not for disabled
controls, which it exempts.
"""

from __future__ import annotations

from typing import Any

# For each text node, and each text that the style adds before an element: the colors below its middle, from the
# canvas upwards, and its color on it.
_MEASURE = """() => {
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (color) => {
    if (!known.has(color)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = "#000";
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const luminance = (color) => {
    const [r, g, b] = color.map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  const painted = (element) => {
    const style = getComputedStyle(element);
    if (!(element instanceof SVGElement)) return rgba(style.backgroundColor);
    const isFilled = element.matches("rect, path, circle") && style.fill !== "none";
    return isFilled ? rgba(style.fill) : [0, 0, 0, 0];
  };
  const found = [];
  const measure = (element, text, style, box) => {
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    const stack = document.elementsFromPoint(x, y);
    // Not on top: it is clipped, or another element covers it.
    if (!box.width || !stack.some((each) => element.contains(each)) || element.closest(":disabled")) return;
    const isSvg = element instanceof SVGElement;
    let below = stack.reverse().map(painted).reduce((color, each) => over(each, color), canvas);
    const hasEdge = isSvg && style.paintOrder.startsWith("stroke") && style.stroke !== "none";
    if (hasEdge) below = over(rgba(style.stroke), below);
    let color = rgba(isSvg ? style.fill : style.color);
    for (let each = element; each; each = each.parentElement) {
      color = [...color.slice(0, 3), color[3] * Number(getComputedStyle(each).opacity)];
    }
    const [low, high] = [luminance(below), luminance(over(color, below))].sort((a, b) => a - b);
    const where = `${element.tagName} ${isSvg ? style.fill : style.color} on ${below.map(Math.round)}`;
    found.push([(high + 0.05) / (low + 0.05), `${text.trim().slice(0, 60)} (${where})`]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement, style = getComputedStyle(element);
    if (!node.data.trim() || element.closest("script, style, title, desc") || style.fontSize === "0px") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    measure(element, node.data, style, range.getBoundingClientRect());
  }
  for (const element of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(element, "::before");
    if (!/^["a]/.test(style.content) || !element.getClientRects().length) continue;
    const { left, top, height } = element.getBoundingClientRect();
    measure(element, `before ${element.textContent}`, style, { left, top, width: 8, height });
  }
  return found;
}"""


def low_contrasts(page: Any, least: float = 4.5) -> list[str]:
    """The visible texts of a page below a contrast, with it. Fails if the page shows no text.

    The viewport becomes as high as the page, since a browser states what is painted at a place of the viewport alone.
    """
    size = page.viewport_size
    page.set_viewport_size({"width": size["width"], "height": page.evaluate("document.documentElement.scrollHeight")})
    found = page.evaluate(_MEASURE)
    page.set_viewport_size(size)
    assert found, "no text is visible"
    return [f"{ratio:.2f}: {text}" for ratio, text in found if ratio < least]
