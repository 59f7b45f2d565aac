select
    dataset,
    label,
    count(*) as labels,
    count(*) filter (holds) as holds,
    count(*) filter (not holds) as holds_not,
    count(*) filter (holds is null) as disputed,
    string_agg(distinct language, ', ' order by language) as languages,
    first(instruction || ' (' || origin || ')' order by id) as example
from {{ ref('stg_labels') }}
group by all
order by all
