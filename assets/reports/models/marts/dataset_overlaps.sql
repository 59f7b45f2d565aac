-- Which dataset holds the edit that is kept in the place of one that fell out.
with kept as (
    select id, any_value(dataset) as dataset from {{ ref('stg_division') }} where split is not null group by id
)

select fallen.dataset, kept.dataset as kept_in, fallen.reason, count(*) as edits
from {{ ref('stg_division') }} as fallen
inner join kept on kept.id = fallen.kept_id
where fallen.reason is not null
group by all
order by all
