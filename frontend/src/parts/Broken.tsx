/** What is shown in place of a view that could not be drawn, or whose part did not arrive. */
import { Component, type ReactNode } from "react";

interface State {
  error: Error | null;
}

export class Broken extends Component<{ children: ReactNode }, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: Error): State {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div className="empty card" role="alert">
        <h1>This view could not be shown</h1>
        <p>The page may have been updated since you opened it.</p>
        <p className="quiet small">{error.message}</p>
        <button type="button" className="button primary" onClick={() => location.reload()}>
          Reload the page
        </button>
      </div>
    );
  }
}
