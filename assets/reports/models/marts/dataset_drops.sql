select
    dataset,
    reason,
    count(*) as dropped,
    first(file || ':' || line || ': ' || detail order by file, line, detail) as example
from {{ ref('stg_drops') }}
group by all
order by all
