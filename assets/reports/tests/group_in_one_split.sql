-- A repository or package in two splits leaks its idioms from training into evaluation.
select origin_group
from {{ ref('stg_edits') }}
group by origin_group
having count(distinct split) > 1
