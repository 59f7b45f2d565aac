-- The licences of rows; those that are not allowed are among the drops.
with edits as (
    select dataset, licence, count(*) as edits from {{ ref('stg_normalized') }} group by all
),

labels as (
    select dataset, licence, count(*) as labels from {{ ref('stg_labels') }} group by all
),

kept as (
    select dataset, licence, count(*) as kept from {{ ref('stg_edits') }} group by all
),

home as (
    select dataset, number as home_rows from {{ ref('stg_counts') }} where stage = 'raw' and name = 'num_records'
)

select
    dataset,
    licence,
    coalesce(edits.edits, 0) as edits,
    coalesce(labels.labels, 0) as labels,
    coalesce(kept.kept, 0) as kept,
    round(100 * kept.kept / nullif(sum(kept.kept) over (partition by dataset), 0), 2) as percent_of_kept,
    round(100 * coalesce(kept.kept, 0) / nullif(home.home_rows, 0), 2) as percent_of_rows
from edits
full join labels using (dataset, licence)
left join kept using (dataset, licence)
left join home using (dataset)
order by dataset, licence
