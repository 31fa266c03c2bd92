"""What people do on the page inside Airflow, in a headless browser."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, FrameLocator, Locator, Page, expect

PAGE = "Lake tiering"
WAIT_MS = 60_000
"""The machine of a test run is busy."""


class Person:
    """Somebody at a browser of their own, who is logged in to Airflow."""

    def __init__(self, browser: Browser, url: str, user: str, password: str) -> None:
        self.url = url
        self._context = browser.new_context(viewport={"width": 1400, "height": 900})
        self._context.set_default_timeout(WAIT_MS)
        self.page: Page = self._context.new_page()
        self._log_in(user, password)

    def _log_in(self, user: str, password: str) -> None:
        """Opens the page without a login, and is sent to Airflow's."""
        self.page.goto(f"{self.url}/sluice/")
        self.page.locator("input[name=username]").fill(user)
        self.page.locator("input[name=password]").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("navigation", name="Views")).to_be_visible(timeout=WAIT_MS)

    def from_navigation(self) -> FrameLocator:
        """Opens the page from Airflow's navigation."""
        self.page.goto(self.url)
        self.page.get_by_role("button", name="Browse").click()
        self.page.get_by_role("menuitem", name=PAGE).click()
        return self.frame()

    def from_tab(self, dag_id: str) -> FrameLocator:
        """Opens the page from its tab on a DAG."""
        self.page.goto(f"{self.url}/dags/{dag_id}")
        self.page.get_by_role("link", name=PAGE, exact=True).click()
        return self.frame()

    def frame(self) -> FrameLocator:
        frame = self.page.frame_locator(f"iframe[title='{PAGE}']")
        expect(frame.get_by_role("navigation", name="Views")).to_be_visible(timeout=WAIT_MS)
        return frame

    def act(self, frame: FrameLocator, button: Locator, confirm: str, said: str) -> None:
        """Clicks a button, confirms, and waits for the answer."""
        button.click()
        frame.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()
        answer = frame.get_by_role("status").filter(has_text=re.compile(said))
        expect(answer.first).to_be_visible(timeout=WAIT_MS)

    def post(self, path: str) -> int:
        """What the server answers to a POST that the frame itself sends."""
        frame = next(one for one in self.page.frames if "/sluice/" in one.url)
        script = """path => fetch(path, {method: "POST", headers: {"X-Sluice-Page": "1"}})
            .then(answer => answer.status)"""
        status: int = frame.evaluate(script, path)
        return status

    def close(self) -> None:
        self._context.close()
