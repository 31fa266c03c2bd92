/** The definition of a table: columns, keys and options. */
import type { Schemas } from "../api/client";
import { counted, moment, span } from "../format";
import type { SectionProps } from "./TableView";
import { Grid } from "./TableViewGrid";
import { Nothing } from "./TableViewStates";

export function Definition({ details }: SectionProps) {
  const { bucket_count: buckets, freshness_ms: freshness, created_ms: created } = details;
  if (buckets == null || freshness == null || created == null)
    return <Nothing title="The definition was not read before the cluster went away" />;
  const options = Object.entries(details.properties).sort(([a], [b]) => a.localeCompare(b));
  return (
    <>
      <dl className="details card">
        <Fact name="Kind" text={details.has_primary_key ? "primary-key table" : "log table"} />
        <Fact name="Primary key" text={details.primary_key.join(", ")} />
        <Fact name="Partitioned by" text={details.partition_keys.join(", ")} />
        <Fact
          name="Buckets"
          text={
            counted(buckets, "bucket") +
            (details.partition_keys.length > 0 ? " in each new partition" : "") +
            (details.bucket_keys.length > 0 ? `, by ${details.bucket_keys.join(", ")}` : "")
          }
        />
        <Fact name="Freshness" text={span(freshness, 2)} />
        <Fact name="Created" text={moment(created)} />
        <Fact name="Table id" text={String(details.table.table_id)} />
      </dl>
      <h2 className="section-title">Columns</h2>
      <Grid
        caption="Columns"
        columns={[
          {
            key: "name",
            head: "Column",
            isName: true,
            cell: (each) => (
              <>
                <code>{each.name}</code> <Roles name={each.name} details={details} />
              </>
            ),
          },
          { key: "type", head: "Type", cell: (each) => <code>{each.type}</code> },
          ...(details.columns.some((each) => each.comment)
            ? [
                {
                  key: "comment",
                  head: "Comment",
                  cell: (each: Schemas["Column"]) => each.comment ?? null,
                },
              ]
            : []),
        ]}
        rows={details.columns}
        keyOf={(each) => each.name}
      />
      <h2 className="section-title">Options</h2>
      {options.length === 0 ? (
        <p className="quiet">It has no options.</p>
      ) : (
        <Grid
          caption="Options"
          columns={[
            { key: "name", head: "Option", isName: true, cell: ([name]) => <code>{name}</code> },
            { key: "value", head: "Value", cell: ([, value]) => <code>{value}</code> },
          ]}
          rows={options}
          keyOf={([name]) => name}
        />
      )}
    </>
  );
}

function Fact({ name, text }: { name: string; text: string }) {
  if (!text) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </div>
  );
}

function Roles({ name, details }: { name: string; details: Schemas["TableDetails"] }) {
  return (
    <>
      {details.primary_key.includes(name) && <span className="hint">primary key</span>}
      {details.partition_keys.includes(name) && <span className="hint">partition</span>}
    </>
  );
}
