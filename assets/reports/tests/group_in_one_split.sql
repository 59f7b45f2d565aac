{{ config(meta={'description': 'No repository or package is in two splits.'}) }}
-- A repository or package in two splits leaks its idioms from training into evaluation.
select lower(origin_group) as origin_group
from {{ ref('stg_edits') }}
group by lower(origin_group)
having count(distinct split) > 1
