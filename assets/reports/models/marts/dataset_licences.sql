select dataset, licence, count(*) as edits
from {{ ref('stg_edits') }}
group by all
order by all
